//go:build unix

package main

import "syscall"

// raiseOpenFiles lets the brokers that this process starts keep many files open: one with 10,000 partitions has 20,000. What
// the system does not allow stays as it is.
func raiseOpenFiles() {
	const wanted = 500_000 // as the scripts that start Kafka
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil || l.Cur >= wanted {
		return
	}
	higher := syscall.Rlimit{Cur: wanted, Max: max(l.Max, wanted)}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &higher); err != nil {
		higher = syscall.Rlimit{Cur: l.Max, Max: l.Max}
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &higher)
	}
}
