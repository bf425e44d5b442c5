package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
)

// version is set by the linker (-X main.version=…).
var version = "dev"

type versionCmd struct{}

// Run prints the version and what it was built with.
func (versionCmd) Run() error {
	_, err := fmt.Fprintf(os.Stdout, "fence-sidecar %s (%s, %s/%s)\n", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

func buildVersion() string {
	if version != "dev" {
		return version
	}
	if bi, ok := debug.ReadBuildInfo(); ok && bi.Main.Version != "" && bi.Main.Version != "(devel)" {
		return bi.Main.Version
	}
	return version
}
