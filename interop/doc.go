// Package interop holds the tests that need other software: real Kafka clients, Kafka's own tools and jars.
// They carry the build tag interop and run by `make interop`, which first installs what they use (setup.sh).
// Each starts klamm as a process of its own, on free loopback ports and in a folder of its own.
package interop
