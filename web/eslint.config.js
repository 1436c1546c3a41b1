import js from '@eslint/js'
import svelte from 'eslint-plugin-svelte'
import globals from 'globals'
import ts from 'typescript-eslint'

export default ts.config(
  { ignores: ['node_modules/', 'src/api/schema.d.ts'] },
  js.configs.recommended,
  ...ts.configs.strict,
  ...svelte.configs.recommended,
  { languageOptions: { globals: globals.browser } },
  {
    files: ['**/*.svelte', '**/*.svelte.ts'],
    languageOptions: { parserOptions: { parser: ts.parser } },
    rules: {
      'svelte/no-navigation-without-resolve': 'off', // there is no SvelteKit
      'svelte/prefer-svelte-reactivity': 'off', // caches count their changes themselves
    },
  },
  {
    files: ['src/**'],
    // The sizes of a module that is read in one go, as for the Python sources.
    rules: { 'max-lines': ['error', 400], '@typescript-eslint/no-non-null-assertion': 'off', 'no-eval': 'error' },
  },
)
