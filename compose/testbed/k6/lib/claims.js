// What several scripts share.
export function claim(number) {
  return { resourceType: 'Claim', status: 'active', use: 'claim', identifier: [{ value: `C-${number}` }] };
}

export function think() {
  return 0.02 + Math.random() * 0.02;
}
