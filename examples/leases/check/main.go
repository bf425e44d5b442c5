// Command check drives one application with a lease keeper through a hand-over and the rest of a lease's life, beside another
// holder, which is the command itself. It prints one line per check; the exit code is 1 if one failed. run.sh starts it.
//
//	check [flags] name command [argument …]
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

// patience bounds every wait. The leases are of 3 s.
const patience = 20 * time.Second

// setting is what the checks run against.
type setting struct {
	name    string
	command []string
	base    int // amounts from here on are this application's; the gateway's ledger tells calls apart by their amount
	sandbox string
	pay     string // the sidecar's data listener
	sidecar string // its control listener
	leases  string // the same, by a sandbox's lease proxy
	stalls  string // that sandbox
	slow    string // the control listener of a sidecar whose leases are of 12 s
}

var checks = []struct {
	name string
	run  func(*run)
}{
	{"charges under its lease, and renews it", (*run).renewed},
	{"is frozen past its lease and charges nothing more", (*run).frozen},
	{"is cut off from the sidecar and knows when trust ends", (*run).stalled},
	{"is told at once that its lease is gone", (*run).refused},
	{"sees that it is cancelled", (*run).cancelled},
	{"does not release while a call is in flight", (*run).inFlight},
	{"finishes, and nobody takes the scope again", (*run).finished},
}

func main() {
	var s setting
	flag.IntVar(&s.base, "base", 1000, "first amount")
	for name, place := range map[string]*string{"sandbox": &s.sandbox, "pay": &s.pay, "sidecar": &s.sidecar, "leases": &s.leases, "stalls": &s.stalls, "slow": &s.slow} {
		flag.StringVar(place, name, "", "URL")
	}
	only := flag.String("only", "", "only the checks with this word")
	flag.Parse()
	if flag.NArg() < 2 {
		flag.Usage()
		os.Exit(2)
	}
	s.name, s.command = flag.Arg(0), flag.Args()[1:]
	failed := false
	for i, c := range checks {
		if !strings.Contains(c.name, *only) {
			continue
		}
		if err := attempt(&run{setting: s, scope: fmt.Sprintf("%s-%d", s.name, i), amount: s.base + 10*i}, c.run); err != nil {
			failed = true
			fmt.Printf("FAILED  %s %s: %v\n", s.name, c.name, err)
		} else {
			fmt.Printf("ok      %s %s\n", s.name, c.name)
		}
	}
	if failed {
		os.Exit(1)
	}
}

// flaw ends a check.
type flaw struct{ error }

func attempt(r *run, check func(*run)) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case flaw:
			err = p.error
		default:
			panic(p)
		}
	}()
	defer func() {
		for _, a := range r.apps {
			a.end()
		}
	}()
	check(r)
	return nil
}

func failf(format string, args ...any) { panic(flaw{fmt.Errorf(format, args...)}) }

// run is one check under way.
type run struct {
	setting
	scope  string
	amount int
	apps   []*app
}

// renewed: the token is live on a call, and after more than two leases' time it is the same one.
func (r *run) renewed() {
	a := r.start(r.leases)
	began := time.Now()
	token := a.acquire(r.scope)
	a.charge(r.amount, "200 live")
	time.Sleep(time.Until(began.Add(7 * time.Second)))
	a.want("held", "true")
	a.charge(r.amount+1, "200 live")
	r.state(token, "live")
	r.executed(r.amount, 1)
	r.executed(r.amount+1, 1)
}

// frozen: SIGSTOP for longer than the lease. The application's first look after SIGCONT must say that it is not held.
func (r *run) frozen() {
	a := r.start(r.leases)
	old := a.acquire(r.scope)
	a.charge(r.amount, "200 live")
	a.freeze()
	token := r.takeOver(old)
	r.charge(token, r.amount+1, "200 live")
	r.control(r.stalls, "leases/stall", "token", old) // so that no answer can be faster than its own look
	a.write("held")
	a.thaw()
	if got := a.read(); got != "false" {
		failf("held says %s after the freeze", got)
	}
	r.control(r.stalls, "leases/resume", "token", old)
	a.eventually("lost", "true")
	a.charge(r.amount+1, "409 fenced") // what the new holder charged
	a.charge(r.amount+2, "409 fenced") // what nobody charged
	a.want("release", "refused fenced")
	for i, want := range []int{1, 1, 0} {
		r.executed(r.amount+i, want)
	}
}

// stalled: the application runs, but nothing of its lease gets through. Only its own clock can tell.
func (r *run) stalled() {
	a := r.start(r.leases)
	old := a.acquire(r.scope)
	r.control(r.stalls, "leases/stall", "token", old)
	a.eventually("held", "false")
	a.eventually("lost", "true")
	r.charge(r.takeOver(old), r.amount, "200 live")
	a.charge(r.amount, "409 fenced")
	r.control(r.stalls, "leases/resume", "token", old)
	a.want("held", "false")
	r.executed(r.amount, 1)
}

// refused: the lease is gone at the store while the application trusts it for long.
func (r *run) refused() {
	a := r.start(r.slow)
	token := a.acquire(r.scope)
	a.want("held", "true")
	if status, text := r.post(r.slow, "release", token, nil); status != 200 {
		failf("release: %d %s", status, text)
	}
	// It renews every 4 s and would trust for 12 s.
	began := time.Now()
	a.eventually("lost", "true")
	if took := time.Since(began); took > 6*time.Second {
		failf("it was told after %v", took)
	}
	a.want("held", "false")
}

// cancelled: the mark is seen, and is no loss.
func (r *run) cancelled() {
	a := r.start(r.leases)
	token := a.acquire(r.scope)
	a.want("cancelled", "false")
	if status, text := r.post(r.sidecar, "cancel", "", map[string]any{"id": r.scope}); status != 200 {
		failf("cancel: %d %s", status, text)
	}
	a.eventually("cancelled", "true")
	a.want("held", "true")
	a.want("release", "done")
	r.state(token, "released")
}

// inFlight: the refusal of a release is seen, and the lease goes on until the call is settled.
func (r *run) inFlight() {
	a := r.start(r.leases)
	token := a.acquire(r.scope)
	done := make(chan string, 1)
	go func() { done <- r.pays(token, r.amount, "hold-after="+r.scope) }()
	r.get(r.sandbox + "/_sandbox/holds/" + r.scope)
	a.want("release", "refused calls-in-flight")
	time.Sleep(4 * time.Second)
	a.want("release", "refused calls-in-flight")
	a.want("held", "true")
	r.control(r.sandbox, "holds/"+r.scope+"/release")
	if got := <-done; got != "200 live" {
		failf("the call in flight was answered %s", got)
	}
	a.want("release", "done")
	a.want("held", "false")
	a.want("lost", "false")
	r.state(token, "released")
	r.executed(r.amount, 1)
}

// finished: the end is for good.
func (r *run) finished() {
	a := r.start(r.leases)
	token := a.acquire(r.scope)
	a.charge(r.amount, "200 live")
	a.want("finish", "done")
	a.want("held", "false")
	a.want("lost", "false")
	r.state(token, "finished")
	a.want("acquire "+r.scope, "refused scope-finished")
	r.executed(r.amount, 1)
}

// takeOver acquires the scope once its lease has run out.
func (r *run) takeOver(old string) (token string) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		status, text := r.post(r.sidecar, "acquire", "", map[string]any{"id": r.scope, "holder": "check", "ttl_ms": 60_000})
		if status == 200 {
			token = field(text, "fence_token")
			if token == old {
				failf("the next holder got the same token %s", token)
			}
			return token
		}
		if status != 409 {
			failf("acquire: %d %s", status, text)
		}
	}
	failf("the scope did not come free")
	return ""
}

// state looks at the sidecar how a token's scope stands.
func (r *run) state(token, status string) {
	text := r.get(r.sidecar + "/v1/leases/state?id=" + r.scope)
	if field(text, "status") != status || !strings.Contains(text, `"token":`+token[strings.LastIndex(token, "#")+1:]+",") {
		failf("want %s %s: %s", token, status, text)
	}
}

// executed counts at the gateway.
func (r *run) executed(amount, want int) {
	n := 0
	for _, o := range r.ledger() {
		if o.Amount == amount {
			n++
		}
	}
	if n != want {
		failf("the gateway executed the charge of %d %d times, want %d", amount, n, want)
	}
}
