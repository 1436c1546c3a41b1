import './app.css'
import { mount } from 'svelte'
import App from './App.svelte'
import { applyTheme } from './state/theme.svelte'

applyTheme()
mount(App, { target: document.getElementById('app')! })
