package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// options are what a command takes: options with a value and without, by name with dashes. What is left are words.
type options struct {
	command string
	values  map[string]*string
	flags   map[string]*bool
}

// parse reads --name value and --name=value.
func (o options) parse(args []string) (words []string, err error) {
	for i := 0; i < len(args); i++ {
		name, value, inline := strings.Cut(args[i], "=")
		switch {
		case o.values[name] != nil:
			if !inline {
				if i++; i == len(args) {
					return nil, fmt.Errorf("%s needs a value", name)
				}
				value = args[i]
			}
			*o.values[name] = value
		case o.flags[args[i]] != nil:
			*o.flags[args[i]] = true
		case strings.HasPrefix(name, "-"):
			return nil, fmt.Errorf("%s is not an option; `klamm %s --help` lists them", name, o.command)
		default:
			words = append(words, args[i])
		}
	}
	return words, nil
}

// progress tells a person once a second how far long work is; what takes less says nothing.
func progress(w io.Writer, what string) func(done int) {
	said := time.Now()
	return func(done int) {
		if now := time.Now(); now.Sub(said) >= time.Second {
			said = now
			fmt.Fprintf(w, "%s: %d nodes\n", what, done)
		}
	}
}
