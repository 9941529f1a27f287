//go:build !linux

package etcdstore

import "time"

// setUserTimeout does nothing where sockets have no such option: there connections are given up by TCP's own retries.
func setUserTimeout(int, time.Duration) error { return nil }
