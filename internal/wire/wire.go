// Package wire is the edge between klamm and the Kafka protocol: frames, headers, the codec, the table of
// served API versions, the server's connection loop and the client that brokers reach each other with.
//
// # Server
//
// A connection costs two goroutines. The reader takes one frame after the other, decodes it and calls the
// Handler, in order. The handler answers by Request.Respond, now or later, from any goroutine; the writer sends
// the answers in the order of their requests. A connection with too many unanswered requests is not read until
// some are answered, so a client cannot pile up work.
//
// # Memory
//
// A frame's memory grows as its bytes arrive, never by the length it claims, and a message is decoded only once
// its bytes are there. Frames and answers live in pooled buffers; the Records of a Produce request alias the
// frame until the request has been answered. A fetch answer carries record bytes from files: they are read once,
// into a pooled buffer, when it is their turn to be written.
//
// # Locks
//
// Conn.mu guards a connection's queue of unanswered requests, quotas.mu the connection counts, logLimiter.mu the
// times of the last log lines, Server.mu the set of connections. None is held while another is taken or during
// IO, a channel operation or a callback.
package wire
