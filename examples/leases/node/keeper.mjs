// Keeps a lease while a piece of work is done. Copy it into your application; it needs Node 20 only.
//
// The application asks held() right before each step, and puts token() on every call to a gateway, as Fence-Token. When the lease
// is lost, or a call is answered `fenced`, it stops: another holder goes on with the work. It undoes nothing and repeats nothing.
import { setTimeout as sleep } from 'node:timers/promises';

// The sidecar's no. slug: held, fenced, scope-finished, calls-in-flight …; after: milliseconds until a repeat makes sense.
export class Refused extends Error {
  constructor(slug, after) {
    super(slug);
    Object.assign(this, { slug, after });
  }
}

// A lease on a scope, renewed in the background. onLost is called at once when it is lost.
export class Keeper {
  lost = false;
  cancelled = false;
  #sidecar; #onLost; #token; #until; #granted;
  #end = new AbortController(); // released or finished
  #queue = Promise.resolve();

  static async acquire(scope, { sidecar = 'http://127.0.0.1:8182', onLost = () => {}, ...options } = {}) { // holder, tenant
    const keeper = new Keeper();
    keeper.#sidecar = sidecar;
    keeper.#onLost = onLost;
    keeper.#note(await keeper.#ask('acquire', 10_000, { id: scope, ...options }));
    keeper.#renew();
    return keeper;
  }

  token() { return this.#token; }

  // Milliseconds in which nobody else can have the scope. Once 0, always 0.
  trustedFor() { return this.lost || this.#end.signal.aborted ? 0 : Math.max(0, this.#until - performance.now()); }

  held() { return this.trustedFor() > 0; }

  // Gives the scope back. Refused with calls-in-flight while a call's outcome is open: the lease goes on, ask again.
  release() { return this.#one(() => this.#ask('release', 10_000).then(() => this.#end.abort())); }

  // Like release, and the scope is never granted again: the work is done.
  finish() { return this.#one(() => this.#ask('finish', 10_000).then(() => this.#end.abort())); }

  // One request at a time, so that a renewal never meets its own release.
  #one(step) {
    const result = this.#queue.then(step);
    this.#queue = result.catch(() => {});
    return result;
  }

  // One request, sent once. The clock is read before it leaves, because its answer may take long.
  async #ask(what, timeout, body) {
    const sent = performance.now();
    const answer = await fetch(`${this.#sidecar}/v1/leases/${what}`, {
      method: 'POST',
      headers: { ...(this.#token && { 'Fence-Token': this.#token }), ...(body && { 'Content-Type': 'application/json' }) },
      body: body && JSON.stringify(body),
      signal: AbortSignal.timeout(Math.ceil(timeout)),
    });
    const text = await answer.text();
    if (answer.status === 200) return { sent, facts: answer.headers };
    const slug = /\/problems\/([a-z-]+)/.exec(text)?.[1] ?? `${answer.status} ${text}`;
    if (this.#token && (slug === 'fenced' || slug === 'scope-finished')) this.#lose();
    throw new Refused(slug, Number(answer.headers.get('Retry-After')) * 1000);
  }

  #note({ sent, facts }) {
    this.#token = facts.get('Fence-Token');
    this.cancelled = facts.get('Fence-Cancelled') === 'true';
    this.#granted = Number(facts.get('Fence-Trusted-For-Ms'));
    this.#until = sent + this.#granted;
  }

  async #renew() {
    for (let pause = this.#granted / 3; this.held();) {
      await sleep(Math.min(pause, this.trustedFor()), undefined, { signal: this.#end.signal, ref: false }).catch(() => {});
      pause = this.#granted / 10; // sooner, after an error
      await this.#one(async () => {
        const answer = this.held() && await this.#ask('confirm', Math.min(this.#granted / 3, this.trustedFor()));
        if (!this.held()) return;
        this.#note(answer);
        pause = this.#granted / 3;
      }).catch(() => {}); // if it is not lost, it is trusted for as long as was granted
    }
    this.#lose();
  }

  #lose() {
    if (this.lost || this.#end.signal.aborted) return;
    this.lost = true;
    this.#onLost();
  }
}
