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
	fault := flag.String("fault", "", "no-shape or no-header: leave the gateway's error shape or its headers out, which checks must notice")
	flag.Parse()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		fmt.Println(l.Addr())
		srv := &http.Server{Handler: &problems.Handler{Fault: problems.Fault(*fault)}, ReadHeaderTimeout: 10 * time.Second}
		err = srv.Serve(l)
	}
	fmt.Fprintln(os.Stderr, "refusals:", err)
	os.Exit(1)
}
