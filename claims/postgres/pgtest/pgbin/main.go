// Command pgbin prints the folder of PostgreSQL's server programs, or one line that says what to install.
package main

import (
	"fmt"
	"os"

	"github.com/fence-sidecar/fence-sidecar/claims/postgres/pgtest"
)

func main() {
	dir, err := pgtest.BinDir()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(dir)
}
