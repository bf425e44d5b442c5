// What each gateway goes through behind the sidecar, driven by its own SDK, and how it is counted at the sandbox gateway. run.sh
// starts the scripts that use this: one line per check, exit code 1 if one failed.
//
//   scenes     the eight scenarios through a sidecar (SIDECAR) in front of the sandbox (SANDBOX)
//   refusals   every refusal of the sidecar (REFUSALS): an error for the SDK, and never sent again by it
//   unfenced   straight to the sandbox, repeated as if it were another call: the count must notice that two were executed
//   broken     through a sidecar, but the gateway does not keep its word and ignores keys: the count must notice that too
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';

const { SIDECAR, SANDBOX, REFUSALS, HOOK, HOOK_SECRET } = process.env;
export const KEY = process.env.CREDENTIAL;

const PATIENCE = 60_000; // bounds every wait

// Refusals after which the same call is asked for again under the same key; the rest is for a person. The first four an SDK may
// repeat by itself.
const REPEATABLE = ['in-flight', 'store-unavailable', 'instance-lease-lost', 'draining'];
const AGAIN = [...REPEATABLE, 'in-doubt', 'not-sent', 'breaker-open', 'quarantine', 'unreadable'];

// What an app is: one gateway's SDK as an application uses it. It is made by a function of the sidecar's port for the gateway, and
// of a token where the SDK must not fetch one there.
//
//   gateway          its name
//   pay              takes { amount, headers, how }; how is '', decline or slow. Gives { id, state, money }: the gateway's id; paid,
//                    pending or declined; the id of what moved the money, where it is another one
//   show             reads what pay gave again; without it, nothing can be read
//   code, status     of an error: the gateway's own code, which is fence_<slug> in a refusal of the sidecar, and the HTTP status;
//                    undefined where there is none, or no answer came
//   silent           refusals of which the SDK shows the status only
//   again            further refusals that are sent again by themselves
//   refused          further checks of a refusal, by the error and whether it may be repeated
//   declines         whether an error is the gateway's no; without it, a decline is no error
//   final            a decline is the call's outcome; else the call may be asked for again, and is sent
//   first            the state of a payment that goes through, at first
//   asks             a repeat under the same key is how a doubt is settled
//   stored           a 500 after the charge stands under the key and nothing else tells: the call stays in doubt
//   hooked           the gateway's notice tells where a pending payment's money is; else the sidecar asks
//   steps            in which a pending payment's money arrives
const usual = { final: true, first: 'paid', asks: true, stored: false, hooked: false, steps: 1, silent: [], again: [] };

const get = async (url) => (await fetch(url)).json();

async function control(method, path, body) {
  const answer = await fetch(`${SANDBOX}/_sandbox/${path}`, { method, body: body && JSON.stringify(body) });
  assert.equal(answer.status, 204, `${path}: ${await answer.text()}`);
}

async function eventually(what, holds) {
  for (const until = Date.now() + PATIENCE; !(await holds()); await sleep(100)) {
    if (Date.now() > until) assert.fail(`never happened: ${what}`);
  }
}

// The operations on an order's money that the gateway carried out. Every order here has an amount of its own.
const executed = async (amount) => (await get(`${SANDBOX}/_sandbox/ledger`)).filter((o) => o.money && o.amount === amount);

async function atMostOnce(amount) {
  const rows = await executed(amount);
  const keys = new Set(rows.map((o) => o.idempotency_key));
  if (rows.length > 1) assert.fail(`executed ${rows.length} times, under ${keys.size} keys`);
  return rows;
}

// The sidecar's record of a call, which has the key that the gateway was given.
const record = async (call) => (await get(`${SIDECAR}/.well-known/fence-sidecar/calls?key=${encodeURIComponent(call)}`)).call;

// The POSTs with the call's key that reached the gateway's socket.
async function sends(call) {
  const key = (await record(call)).gatewayKey;
  return (await get(`${SANDBOX}/_sandbox/sends`)).filter((s) => s.method === 'POST' && s.idempotency_key === key).length;
}

// One order: its amount and the headers of its call. Every request of it carries them.
class Order {
  static count = 0;

  constructor(app, name, { fault, how = '' } = {}) {
    Order.count += 1;
    Object.assign(this, { app, how, call: `${app.gateway}/node/${name}` });
    this.amount = 5000 + 100 * Order.count + (how === 'decline' ? 5 : 0);
    this.headers = { 'Fence-Key': this.call, ...(fault && { 'Sandbox-Fault': fault }) };
  }

  pay() {
    return this.app.pay(this);
  }

  // The error of a call that must not succeed.
  async error() {
    const got = await this.pay().then((value) => ({ value }), (err) => ({ err }));
    if (got.err === undefined) assert.fail(`taken for a success: ${JSON.stringify(got.value)}`);
    return got.err;
  }

  slug(err) {
    const code = this.app.code(err) ?? '';
    return code.startsWith('fence_') ? code.slice('fence_'.length) : '';
  }

  // Whether an application asks again under the same key: nothing is known, or nothing was tried.
  repeats(err) {
    if (this.slug(err)) return AGAIN.includes(this.slug(err));
    const status = this.app.status(err);
    return status === undefined || status >= 500;
  }

  // Pays until the outcome is known.
  async insist() {
    for (const until = Date.now() + PATIENCE; ; await sleep(300)) {
      try {
        return await this.pay();
      } catch (err) {
        if (!this.repeats(err) || Date.now() > until) throw err;
      }
    }
  }

  // Asks several times for what cannot be found out: each answer must be an error that settles nothing.
  async doubtful() {
    for (let i = 0; i < 3; i++, await sleep(300)) {
      const err = await this.error();
      if (!this.repeats(err) && this.slug(err) !== 'needs-review') assert.fail(`settled by ${err}`);
    }
  }

  // Fails unless the gateway carried this call out so many times, under its key, as what the SDK got, by so many requests.
  async counted({ got, times = 1, posts }) {
    const rows = await atMostOnce(this.amount);
    assert.equal(rows.length, times, 'executions');
    for (const row of rows) {
      assert.equal(row.idempotency_key, (await record(this.call)).gatewayKey);
      if (got) assert.equal(row.id, got.money ?? got.id);
    }
    if (posts !== undefined) assert.equal(await sends(this.call), posts, 'sends');
  }
}

function paid(got, state) {
  assert.equal(got.state, state);
  assert.ok(got.id, 'no id');
}

const SCENES = {
  async success(app) {
    const order = new Order(app, 'success');
    const first = await order.pay();
    paid(first, app.first);
    assert.deepEqual(await order.pay(), first);
    await order.counted({ got: first, posts: 1 });
  },
  async decline(app) {
    const order = new Order(app, 'decline', { how: 'decline' });
    for (let i = 0; i < 2; i++) {
      if (app.declines) {
        const err = await order.error();
        assert.ok(app.declines(err), `no decline: ${err}`);
      } else {
        paid(await order.pay(), 'declined');
      }
    }
    await order.counted({ times: 0, posts: app.final ? 1 : 2 });
  },
  async 'answer lost after the charge'(app) {
    const order = new Order(app, 'lost', { fault: 'lose-rst;times=1' });
    const got = await order.insist();
    paid(got, app.first);
    assert.deepEqual(await order.pay(), got);
    await order.counted({ got });
  },
  async 'dropped unread'(app) {
    const order = new Order(app, 'dropped', { fault: 'drop;times=1' });
    if (app.asks) {
      const got = await order.insist();
      paid(got, app.first);
      await order.counted({ got });
    } else {
      await order.doubtful();
      await order.counted({ times: 0, posts: 1 });
    }
  },
  async '500 after the charge'(app) {
    const order = new Order(app, 'failed', { fault: 'error-after;times=1' });
    const got = app.stored ? await order.doubtful() : await order.insist();
    if (got) paid(got, app.first);
    await order.counted({ got });
  },
  async 'stale search'(app) {
    for (const fault of ['list-lag', 'search-lag']) await control('POST', 'faults', { fault, arg: '3s' });
    try {
      const order = new Order(app, 'stale', { fault: 'lose-fin;times=1' });
      const got = await order.insist();
      paid(got, app.first);
      await order.counted({ got, posts: app.asks ? undefined : 1 });
    } finally {
      await control('DELETE', 'faults');
    }
  },
  async 'late execution after our deadline'(app) {
    const order = new Order(app, 'late', { fault: 'delay=5s;times=1' });
    const err = await order.error();
    assert.ok(order.repeats(err), `it settles the call: ${err}`);
    await eventually('the gateway executed it after all', async () => (await executed(order.amount)).length > 0);
    const got = await order.insist();
    paid(got, app.first);
    await order.counted({ got });
  },
  async 'pending, then done'(app) {
    if (app.hooked) await control('POST', 'webhooks', { url: HOOK, secret: HOOK_SECRET });
    const order = new Order(app, 'pending', { how: 'slow' });
    const got = await order.pay();
    paid(got, 'pending');
    assert.equal((await record(order.call)).payment, 'pending');
    for (let i = 0; i < app.steps; i++) await control('POST', `payments/${got.money ?? got.id}/done`);
    if (app.show) assert.equal((await app.show(got)).state, 'paid');
    await eventually('the money is known to have arrived', async () => (await record(order.call)).payment === 'done');
    assert.equal((await order.pay()).id, got.id);
    await order.counted({ got, posts: 1 });
  },
};

let failed = false;

async function check(app, name, body) {
  try {
    await body();
    console.log(`ok      ${app.gateway} node ${name}`);
  } catch (err) {
    failed = true;
    console.log(`FAILED  ${app.gateway} node ${name}: ${String(err?.message ?? err).split('\n').join(' ')}`);
  }
}

async function refusal(app, { slug, status, keys }) {
  for (const key of keys) {
    const order = new Order(app, 'refused');
    order.headers = { 'Fence-Key': key };
    const err = await order.error();
    assert.ok(err instanceof Error, key);
    assert.equal(app.status(err), status, key);
    if (!app.silent.includes(slug)) assert.equal(app.code(err), `fence_${slug}`, key);
    app.refused?.(err, REPEATABLE.includes(slug));
    const sent = (await get(`${REFUSALS}/_counts`))[key];
    assert.ok(sent === 1 || sent > 1 && [...REPEATABLE, ...app.again].includes(slug), `${key}: ${sent} requests`);
  }
}

const MODES = {
  async scenes(make) {
    const app = { ...usual, ...make(SIDECAR) };
    for (const [name, play] of Object.entries(SCENES)) await check(app, name, () => play(app));
  },
  async refusals(make) {
    const app = { ...usual, ...make(REFUSALS, 'example') };
    const all = await get(`${REFUSALS}/_refusals`);
    assert.ok(all.length >= 25, 'the list of refusals is short');
    for (const one of all) await check(app, `rejects ${one.slug}`, () => refusal(app, one));
    const asked = new Set(all.flatMap(({ keys }) => keys));
    await check(app, 'sends nothing else', async () =>
      assert.deepEqual(Object.keys(await get(`${REFUSALS}/_counts`)).filter((key) => !asked.has(key)), []));
  },
  async unfenced(make) {
    const app = { ...usual, ...make(SANDBOX) };
    await check(app, 'answer lost after the charge', async () => {
      const order = new Order(app, 'lost');
      order.headers = { 'Sandbox-Fault': 'lose-rst' };
      assert.ok(order.repeats(await order.error()), 'an answer came');
      order.headers = {};
      paid(await order.pay(), app.first); // under another key, or none
      await atMostOnce(order.amount);
    });
  },
  async broken(make) {
    const app = { ...usual, ...make(SIDECAR) };
    await control('POST', 'faults', { fault: 'ignore-key' });
    const name = 'answer lost after the charge';
    await check(app, name, () => SCENES[name](app));
  },
};

export async function main(make) {
  await MODES[process.argv[2]](make);
  process.exit(failed ? 1 : 0); // connections that are kept open would hold the process
}
