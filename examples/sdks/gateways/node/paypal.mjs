// PayPal's Node SDK through the sidecar: its addresses are constants, so that the HTTP library beneath is given another transport,
// which adds the call's headers too, since no operation takes any.
import { AsyncLocalStorage } from 'node:async_hooks';
import { randomUUID } from 'node:crypto';
import { request } from 'node:http';
import { ApiError, Client, OrdersController } from '@paypal/paypal-server-sdk';
import { KEY, main } from './scenes.mjs';

const call = new AsyncLocalStorage(); // headers of the call that is under way

function client(oAuthClientId, oAuthClientSecret, address, token) {
  const { hostname, port } = new URL(address);
  const transport = {
    request(options, answered) {
      const own = options.path.endsWith('/oauth2/token') ? {} : call.getStore(); // fetching a token is no part of the call
      const headers = { ...options.headers, ...own };
      return request({ ...options, hostname, port, protocol: 'http:', agent: undefined, headers }, answered);
    },
  };
  return new OrdersController(new Client({
    clientCredentialsAuthCredentials: {
      oAuthClientId, oAuthClientSecret, oAuthToken: token && { accessToken: token, tokenType: 'Bearer', expiresIn: 3600n },
    },
    timeout: 30_000,
    unstable_httpClientOptions: { transport },
  }));
}

await main((address, token) => {
  const orders = client('shop', KEY, address, token);
  const read = (order) => {
    const capture = order.purchaseUnits[0].payments.captures[0];
    const state = { COMPLETED: 'paid', PENDING: 'pending' }[capture.status] ?? capture.status;
    return { id: order.id, state, money: capture.id };
  };
  return {
    gateway: 'paypal',

    async pay({ amount, headers, how }) {
      const value = `${Math.floor(amount / 100)}.${String(amount % 100).padStart(2, '0')}`;
      const options = {
        prefer: 'return=representation', // a minimal answer does not show what became of the payment
        body: {
          intent: 'CAPTURE',
          purchaseUnits: [{ amount: { currencyCode: 'EUR', value } }],
          paymentSource: { card: { name: 'J Doe', vaultId: 'example' } },
        },
      };
      if (how === 'decline') options.paypalMockResponse = JSON.stringify({ mock_application_codes: 'INSTRUMENT_DECLINED' });
      if (!headers['Fence-Key']) options.paypalRequestId = randomUUID(); // the sidecar makes a lasting one
      const own = how === 'slow' ? { ...headers, 'Sandbox-Fault': 'processing' } : headers;
      return read((await call.run(own, () => orders.createOrder(options))).result);
    },
    show: async ({ id }) => read((await orders.getOrder({ id })).result),
    code: (err) => (err instanceof ApiError ? JSON.parse(err.body).details?.[0]?.issue : undefined),
    status: (err) => err.statusCode,
    declines: (err) => err instanceof ApiError && JSON.parse(err.body).details[0].issue === 'INSTRUMENT_DECLINED',
  };
});
