// POST of 1 KB of JSON without checks, for `cargo xtask bench-load`.
import http from 'k6/http';
import { figures } from './figures.js';

export const options = { discardResponseBodies: true, summaryTrendStats: ['med', 'p(99)'] };
const url = `${__ENV.TARGET}/`;
const body = open(__ENV.BODY);
const params = { headers: { 'content-type': 'application/json' } };

export default function () {
  http.post(url, body, params);
}

export const handleSummary = figures;
