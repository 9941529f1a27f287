// Package replica holds the partitions that this broker hosts: leaders and followers, their ISR and high watermark,
// the requests that wait for them, and the fetchers that copy from other brokers. It applies the controller's
// LeaderAndIsr, StopReplica and UpdateMetadata requests (Kafka: ReplicaManager, Partition).
//
// Files: manager.go (construction, Run, hosted partitions), control.go with leader_and_isr.go, stop_replica.go and
// update_metadata.go (the controller's requests), unannounced.go (what they have not told clients of yet), partition.go with leadership.go, isr.go, follower_state.go (one
// partition), append.go, fetch.go, list_offsets.go, delete_records.go, epochs.go, log_dirs.go (clients' requests),
// purgatory.go (waiting requests), alter_partition.go (ISR changes to the controller), isr_writer.go (or into the store,
// by older protocols), fetch_session.go (KIP-227, the leader's side), fetcher*.go and follower_session.go (the follower's side), log_dir_moves.go (replicas that change their log dir), stats.go.
//
// Locks, in the order in which they may be taken:
//
//	Manager.control        one controller request at a time
//	Partition.mu           leadership; held for reading while a leader or follower appends
//	Partition.following    a follower's log, while a fetcher appends to it or truncates it
//	Partition.followers    the leader's notes about its followers
//	logDirMoves.mu         which replicas move between log dirs; held for no IO
//	fetcherManager.mu      which fetcher has what; then fetcher.mu, a fetcher's partitions; held for no IO
//	Manager.hosted         the map of partitions, never held while another lock is taken
//	waiter.mu              one waiting request's check, which may read partitions (so it comes before Partition.mu
//	                       and is never taken while one of the locks above is held)
//	purgatory shards, timer queue, alterPartitions.mu, topicTable, unannounced: leaves
//
// Callbacks named done run without any of these locks, on the goroutine that made the answer possible.
package replica
