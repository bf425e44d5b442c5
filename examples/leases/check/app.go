package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// app is one process of the application.
type app struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
}

// start runs the application with its leases at this address.
func (r *run) start(leases string) *app {
	a := &app{cmd: exec.Command(r.command[0], r.command[1:]...), lines: make(chan string, 10)}
	a.cmd.Env = append(os.Environ(), "LEASES="+leases, "PAY="+r.pay)
	a.cmd.Stderr = os.Stderr
	in, err1 := a.cmd.StdinPipe()
	out, err2 := a.cmd.StdoutPipe()
	if err1 != nil || err2 != nil || a.cmd.Start() != nil {
		failf("the application does not start: %v %v", err1, err2)
	}
	a.in = in
	go func() {
		defer close(a.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			a.lines <- s.Text()
		}
	}()
	r.apps = append(r.apps, a)
	return a
}

func (a *app) end() {
	a.in.Close()
	a.cmd.Process.Kill()
	a.cmd.Wait() // its error is the kill
}

func (a *app) freeze() { a.signal(syscall.SIGSTOP) }
func (a *app) thaw()   { a.signal(syscall.SIGCONT) }

func (a *app) signal(s syscall.Signal) {
	if err := a.cmd.Process.Signal(s); err != nil {
		failf("%v: %v", s, err)
	}
}

func (a *app) write(line string) {
	if _, err := io.WriteString(a.in, line+"\n"); err != nil {
		failf("the application has ended: %v", err)
	}
}

func (a *app) read() string {
	select {
	case line, ok := <-a.lines:
		if ok {
			return line
		}
		failf("the application has ended")
	case <-time.After(patience):
		failf("the application does not answer")
	}
	return ""
}

func (a *app) say(line string) string {
	a.write(line)
	return a.read()
}

func (a *app) want(line, want string) {
	if got := a.say(line); got != want {
		failf("%s: %s, want %s", line, got, want)
	}
}

func (a *app) eventually(line, want string) {
	for end := time.Now().Add(patience); a.say(line) != want; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			failf("%s never said %s", line, want)
		}
	}
}

func (a *app) acquire(scope string) (token string) {
	token = a.say("acquire " + scope)
	if !strings.HasPrefix(token, "default:"+scope+"#") {
		failf("acquire: %s", token)
	}
	return token
}

// charge lets the application charge an amount under its token.
func (a *app) charge(amount int, want string) {
	got := a.say(fmt.Sprintf("charge charge:%d %d", amount, amount))
	if status, rest, _ := strings.Cut(got, " "); status == "409" && strings.HasSuffix(rest, "fenced") {
		got = "409 fenced"
	}
	if got != want {
		failf("charge of %d: %s, want %s", amount, got, want)
	}
}

// charge is the other holder's.
func (r *run) charge(token string, amount int, want string) {
	if got := r.pays(token, amount, ""); got != want {
		failf("the next holder's charge of %d: %s, want %s", amount, got, want)
	}
}

func (r *run) pays(token string, amount int, fault string) string {
	form := fmt.Sprintf("amount=%d&currency=eur&confirm=true&payment_method=pm_card_visa", amount)
	header := map[string]string{
		"Authorization": "Bearer " + os.Getenv("STRIPE_KEY"), "Content-Type": "application/x-www-form-urlencoded",
		"Fence-Key": fmt.Sprintf("charge:%d", amount), "Fence-Token": token,
	}
	if fault != "" {
		header["Sandbox-Fault"] = fault
	}
	res, text, err := send(http.MethodPost, r.pay+"/v1/payment_intents", form, header)
	if err != nil {
		return err.Error()
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Sprint(res.StatusCode, " ", text)
	}
	return fmt.Sprint(res.StatusCode, " ", res.Header.Get("Fence-Lease"))
}

// post calls a lease API.
func (r *run) post(sidecar, what, token string, body map[string]any) (status int, text string) {
	header := map[string]string{}
	if token != "" {
		header["Fence-Token"] = token
	}
	var b []byte
	if body != nil {
		header["Content-Type"] = "application/json"
		b, _ = json.Marshal(body)
	}
	res, text, err := send(http.MethodPost, sidecar+"/v1/leases/"+what, string(b), header)
	if err != nil {
		failf("%s: %v", what, err)
	}
	return res.StatusCode, text
}

// control calls a sandbox's control API.
func (r *run) control(sandbox, what string, form ...string) {
	v := url.Values{}
	for i := 0; i+1 < len(form); i += 2 {
		v.Set(form[i], form[i+1])
	}
	res, text, err := send(http.MethodPost, sandbox+"/_sandbox/"+what, v.Encode(), nil)
	if err != nil || res.StatusCode != http.StatusOK {
		failf("sandbox: %s: %v %s", what, err, text)
	}
}

func (r *run) get(url string) string {
	res, text, err := send(http.MethodGet, url, "", nil)
	if err != nil || res.StatusCode != http.StatusOK {
		failf("GET %s: %v %s", url, err, text)
	}
	return text
}

func (r *run) ledger() (ops []struct{ Amount int }) {
	if err := json.Unmarshal([]byte(r.get(r.sandbox+"/_sandbox/ledger")), &ops); err != nil {
		failf("ledger: %v", err)
	}
	return ops
}

func send(method, url, body string, header map[string]string) (*http.Response, string, error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res, string(text), err
}

// field is a text of a flat JSON object; "" where it is not there.
func field(text, name string) string {
	var m map[string]any
	json.Unmarshal([]byte(text), &m)
	s, _ := m[name].(string)
	return s
}
