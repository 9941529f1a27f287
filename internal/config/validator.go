package config

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func number(v any) float64 {
	if n, ok := v.(int64); ok {
		return float64(n)
	}
	return v.(float64)
}

// atLeast allows numbers from least up.
func atLeast(least int64) validator {
	return func(_ string, v any) (string, string) {
		if number(v) < float64(least) {
			return render(v), "Value must be at least " + strconv.FormatInt(least, 10)
		}
		return "", ""
	}
}

// between allows numbers from least to most, which is written as Kafka prints it.
func between(least int64, most string) validator {
	limit, err := strconv.ParseFloat(most, 64)
	if err != nil {
		panic("config: limit " + most)
	}
	low := atLeast(least)
	return func(name string, v any) (string, string) {
		if bad, allowed := low(name, v); allowed != "" {
			return bad, allowed
		}
		if number(v) > limit {
			return render(v), "Value must be no more than " + most
		}
		return "", ""
	}
}

// oneOf allows the named words only, for each element when the key is a list.
func oneOf(words ...string) validator {
	return func(_ string, v any) (string, string) {
		elements, isList := v.([]string)
		if !isList {
			elements = []string{v.(string)}
		}
		for _, e := range elements {
			if !slices.Contains(words, e) {
				return e, "String must be one of: " + strings.Join(words, ", ")
			}
		}
		return "", ""
	}
}

// oneOfAnyCase is oneOf without regard to case.
func oneOfAnyCase(words ...string) validator {
	return func(_ string, v any) (string, string) {
		if !slices.Contains(words, strings.ToUpper(v.(string))) {
			return v.(string), "String must be one of (case insensitive): " + strings.Join(words, ", ")
		}
		return "", ""
	}
}

func nonEmpty(_ string, v any) (string, string) {
	if v == "" {
		return "", "String must be non-empty"
	}
	return "", ""
}

func gzipLevel(_ string, v any) (string, string) {
	if n := v.(int64); n != -1 && (n < 1 || n > 9) {
		return render(v), "Value must be between 1 and 9 or equal to -1"
	}
	return "", ""
}

func minusOneOrPositive(_ string, v any) (string, string) {
	if n := v.(int64); n != -1 && n < 1 {
		return render(v), "Value can be -1 or greater than 0"
	}
	return "", ""
}

var throttledReplica = regexp.MustCompile(`^\d+:\d+$`)

func throttledReplicas(name string, v any) (string, string) {
	list := v.([]string)
	if len(list) == 1 && list[0] == "*" {
		return "", ""
	}
	for _, e := range list {
		if !throttledReplica.MatchString(e) {
			return "[" + strings.Join(list, ", ") + "]", name +
				" must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
		}
	}
	return "", ""
}

func protocolVersion(_ string, v any) (string, string) {
	if _, ok := parseProtocolVersion(v.(string)); !ok {
		return v.(string), "Version " + v.(string) + " is not a valid version"
	}
	return "", ""
}
