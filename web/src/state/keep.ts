// An object that lives as long as what it is for: a derived value may be computed again without a change, and would
// then throw away what the object has loaded.

/** Return a function that makes an object for a key, and returns the same one until the key changes. */
export function keepOne<T>(): (key: string, make: () => T) => T {
  let kept: { key: string; value: T } | undefined
  return (key, make) => {
    if (kept?.key !== key) kept = { key, value: make() }
    return kept.value
  }
}
