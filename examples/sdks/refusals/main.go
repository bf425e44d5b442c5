// Command refusals serves every refusal of the sidecar on a free loopback port, prints its address and serves until it is
// killed. Package problems says what it answers.
package main

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/fence-sidecar/fence-sidecar/examples/sdks/problems"
)

func main() {
	bare := flag.Bool("bare", false, "leave the gateway's own error shape out, to show that the checks notice")
	flag.Parse()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		fmt.Println(l.Addr())
		srv := &http.Server{Handler: &problems.Handler{Bare: *bare}, ReadHeaderTimeout: 10 * time.Second}
		err = srv.Serve(l)
	}
	fmt.Fprintln(os.Stderr, "refusals:", err)
	os.Exit(1)
}
