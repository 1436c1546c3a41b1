import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vite'

// `warp serve` answers on its default port while `npm run dev` serves the sources.
const api = 'http://127.0.0.1:8765'

export default defineConfig({
  plugins: [svelte()],
  build: {
    outDir: '../src/warpdata/server/page',
    emptyOutDir: true,
    target: 'es2023',
    cssTarget: 'chrome125',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: { proxy: { '/api': api, '/sign-in': api } },
})
