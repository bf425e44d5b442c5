//go:build deps

// Package deps holds modules until they are used.
package deps

import (
	_ "github.com/alecthomas/kong"
	_ "github.com/goccy/go-yaml"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/google/uuid"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/prometheus/client_golang/prometheus/testutil"
	_ "github.com/sony/gobreaker/v2"
	_ "github.com/stripe/stripe-go/v85"
	_ "golang.org/x/sys/unix"
	_ "modernc.org/sqlite"
	_ "pgregory.net/rapid"
	_ "github.com/cenkalti/backoff/v5"
)
