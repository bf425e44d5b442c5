// GoCardless's Node SDK through the sidecar: its two addresses are constants, but it takes an agent for proxies, whose connections
// may lead anywhere, without TLS too. Headers go with the call.
import { Agent } from 'node:https';
import { connect } from 'node:net';
import { ApiError, Environments, GoCardlessClient, InvalidStateError } from 'gocardless-nodejs';
import { KEY, main } from './scenes.mjs';

class ToSidecar extends Agent {
  constructor(address) {
    super({ keepAlive: true });
    this.address = new URL(address);
  }

  createConnection() {
    return connect(this.address.port, this.address.hostname);
  }
}

const client = (token, address) => new GoCardlessClient(token, Environments.Live, { proxy: { https: new ToSidecar(address) } });

const read = ({ id, status }) => ({ id, state: ['confirmed', 'paid_out'].includes(status) ? 'paid' : 'pending' });

await main((address) => {
  const sdk = client(KEY, address);
  return {
    gateway: 'gocardless',
    first: 'pending', // a direct debit is under way for days
    final: false, // a mandate that is inactive may be active when the call is asked for again

    async pay({ amount, headers, how }) {
      const call = how === 'decline' ? { ...headers, 'Sandbox-Fault': 'decline' } : headers; // as if the mandate had been cancelled
      return read(await sdk.payments.create({ amount, currency: 'GBP', links: { mandate: 'MD00EXAMPLE' } }, '', call));
    },
    show: async ({ id }) => read(await sdk.payments.find(id)),
    code: (err) => (err instanceof ApiError ? err.errors?.[0]?.reason : undefined),
    status: (err) => (err instanceof ApiError ? err.response.statusCode : undefined),
    declines: (err) => err instanceof InvalidStateError && err.errors[0].reason === 'mandate_is_inactive',
  };
});
