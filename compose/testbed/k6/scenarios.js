// Readers all the time, and a peak of writers in the middle.
import http from 'k6/http';
import { check, sleep } from 'k6';
import { claim, think } from './lib/claims.js';

const API = `${__ENV.TARGET}/fhir`;

export const options = {
  scenarios: {
    readers: {
      executor: 'constant-vus',
      exec: 'reads',
      vus: 2,
      duration: '5s',
      tags: { kind: 'read' },
    },
    writers: {
      executor: 'ramping-arrival-rate',
      exec: 'writes',
      startTime: '1s',
      startRate: 10,
      timeUnit: '1s',
      preAllocatedVUs: 5,
      maxVUs: 20,
      stages: [
        { duration: '1s', target: 30 },
        { duration: '2s', target: 30 },
      ],
      gracefulStop: '1s',
      tags: { kind: 'write' },
    },
  },
};

export function reads() {
  const res = http.get(`${API}/Claim?status=active`, { tags: { name: 'active claims' } });
  check(res, { 'is a bundle': (r) => r.json('resourceType') === 'Bundle' });
  sleep(think());
}

export function writes() {
  const res = http.post(`${API}/Claim`, JSON.stringify(claim(__ITER)), {
    headers: { 'Content-Type': 'application/fhir+json' },
  });
  check(res, { 'is created': (r) => r.status === 201 });
}
