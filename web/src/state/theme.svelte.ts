// Light or dark: as the system says, until the user chooses.

const KEY = 'warp-theme'

class Theme {
  chosen = $state(localStorage.getItem(KEY))

  get isDark(): boolean {
    return this.chosen ? this.chosen === 'dark' : window.matchMedia('(prefers-color-scheme: dark)').matches
  }

  toggle(): void {
    this.chosen = this.isDark ? 'light' : 'dark'
    localStorage.setItem(KEY, this.chosen)
    applyTheme()
  }
}

export const theme = new Theme()

export function applyTheme(): void {
  if (theme.chosen) document.documentElement.dataset['theme'] = theme.chosen
}
