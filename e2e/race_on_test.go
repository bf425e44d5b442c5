//go:build race

package e2e

// raceBuild: the program under test is built with the race detector too.
const raceBuild = true
