//go:build interop

// Package jvm gives the options that the JVMs of the interop tests start with: servers and tools of Kafka's that live for seconds.
package jvm

import "path/filepath"

// Options name the class path, the jars of a folder that setup.sh has filled, and have the JVM compile quickly and take classes as setup.sh has
// kept them beside the folder. Where it has kept none, or of another JVM, they are loaded from the jars.
func Options(jars string) []string {
	return []string{"-XX:TieredStopAtLevel=1", "-XX:SharedArchiveFile=" + filepath.Join(filepath.Dir(jars), "classes.jsa"), "-Xlog:cds=off", "-Xlog:cds+dynamic=off",
		"-cp", filepath.Join(jars, "*")}
}
