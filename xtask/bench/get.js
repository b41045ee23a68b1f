// Plain GET without checks, for `cargo xtask bench-load`. VUs and duration come from the command line.
import http from 'k6/http';
import { figures } from './figures.js';

export const options = { discardResponseBodies: true, summaryTrendStats: ['med', 'p(99)'] };
const url = `${__ENV.TARGET}/`;

export default function () {
  http.get(url);
}

export const handleSummary = figures;
