import { fileURLToPath } from 'node:url'
import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vite'

// `warp serve` answers on its default port while `npm run dev` serves the sources.
const api = 'http://127.0.0.1:8765'
const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url))

export default defineConfig({
  plugins: [svelte()],
  resolve: {
    // The sources of the library, so that it needs no build of its own; its packages are those of the page.
    alias: {
      '@warpdata/wshard': here('../packages/wshard-js/src/index.ts'),
      '#platform': here('../packages/wshard-js/src/platform-web.ts'),
      'hash-wasm': here('node_modules/hash-wasm'),
      zstddec: here('node_modules/zstddec'),
    },
  },
  // Only writers of episodes need the encoder, and the page writes none.
  worker: { format: 'es', rollupOptions: { external: ['@bokuweb/zstd-wasm'] } },
  build: {
    outDir: '../src/warpdata/server/page',
    emptyOutDir: true,
    target: 'es2023',
    cssTarget: 'chrome125',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: { proxy: { '/api': api, '/sign-in': api }, fs: { allow: ['..'] } },
})
