// The encoder that `@warpdata/wshard` loads to write files. The page writes none, so the package is not installed.
declare module '@bokuweb/zstd-wasm' {
  export function init(): Promise<void>
  export function compress(data: Uint8Array, level?: number): Uint8Array
}
