// Whether the palette is open. The header, the keyboard and the palette itself share it.

export const palette = $state({ isOpen: false })

export function openPalette(): void {
  palette.isOpen = true
}
