//go:build !unix

package main

func raiseOpenFiles() {}
