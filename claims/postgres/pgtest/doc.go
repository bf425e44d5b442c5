// Package pgtest runs real PostgreSQL servers for tests, on 127.0.0.1 and each with its own folder, and puts faults between
// them and their clients. Servers are children of the test binary. Nothing of them outlives it: tests and Run stop them, and a
// watchdog, a process of its own, does if the binary is killed, panics or runs out of time. As root it runs them as user
// postgres. A missing program is an error that says what to install, never a skip.
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }
//
//	url, schema := pgtest.Shared(t).Schema(t)                  // the quick way: one server for the binary, a name per test
//	url := pgtest.Shared(t).Database(t)                        // a database per test
//	s := pgtest.New(t, pgtest.Options{Conf: map[string]string{"fsync": "off"}}) // a server that the test may break
//
// A Server is asked with Exec, Value, Wait, SystemID and Timeline, changed with Set, and put down and up again with Stop,
// Kill, Start, Freeze and Thaw, always on the same port. Backup and Restore take it back in time, RestoreNewTimeline as a
// recovery to a point in time does.
//
//	p := pgtest.NewPair(t, pgtest.PairOptions{Synchronous: true})  // p.A primary, p.B standby; p.Promote, p.Rejoin
//	p.CatchUp(ctx); p.StopReplication(); …write to p.A…; p.A.Kill(); p.Promote(ctx) // loses the write, if asynchronous
//
//	x := pgtest.NewProxy(t, s.Addr())                          // for clients: x.URL()
//	caught := x.OnCommit(1, pgtest.DropAnswer)                 // the next COMMIT is applied and its answer lost
//	x.Cut(); x.Target(other.Addr()); x.Heal()                  // another server takes over; also Blackhole and Stall
//
//	b := pgtest.NewBouncer(t, s.Addr(), pgtest.BouncerOptions{}) // PgBouncer, transaction mode
//
// A client whose context ends sends a request to cancel the statement over a second connection, through the proxy too; pgx
// keeps the first one for up to 15 seconds then.
package pgtest
