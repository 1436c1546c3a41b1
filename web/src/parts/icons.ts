// Paths of the icons, drawn with lines of 1.6 on a square of 20.

export const ICONS = {
  search: 'M9 3a6 6 0 1 0 0 12A6 6 0 0 0 9 3ZM13.5 13.5 17 17',
  sun: 'M10 6.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7ZM10 1.5v2M10 16.5v2M1.5 10h2M16.5 10h2M4 4l1.4 1.4M14.6 14.6 16 16M16 4l-1.4 1.4M5.4 14.6 4 16',
  moon: 'M16.5 11.5A7 7 0 0 1 8.5 3.5a7 7 0 1 0 8 8Z',
  copy: 'M7 7h9v10H7zM4 13V3h9',
  close: 'M5 5l10 10M15 5 5 15',
  check: 'M4 10.5 8 14.5 16 5.5',
  grid: 'M3 3h6v6H3zM11 3h6v6h-6zM3 11h6v6H3zM11 11h6v6h-6z',
  table: 'M3 4h14v12H3zM3 8h14M8 8v8',
  filter: 'M3 4h14l-5.5 6.5V16l-3 1.5v-7z',
  left: 'M12 4l-6 6 6 6',
  right: 'M8 4l6 6-6 6',
  down: 'M4 7l6 6 6-6',
  branch: 'M6 3v14M6 12c6 0 8-2 8-6M14 2.5a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3',
  warning: 'M10 3 2 17h16zM10 8v4.5M10 14.5v.5',
  trash: 'M4 6h12M8 6V3.5h4V6M5.5 6l.8 11h7.4l.8-11',
  plus: 'M10 4v12M4 10h12',
  layers: 'M10 3 2.5 7 10 11l7.5-4zM3 11l7 4 7-4',
  user: 'M10 4a3 3 0 1 0 0 6 3 3 0 0 0 0-6ZM4 17c.6-3.4 3-5 6-5s5.4 1.6 6 5',
  expand: 'M3 8V3h5M17 8V3h-5M3 12v5h5M17 12v5h-5',
  keyboard: 'M2.5 5h15v10h-15zM5.5 8h.5M9 8h.5M12.5 8h.5M6 12h8',
  compare: 'M6 3v14M14 3v14M3 6l3-3 3 3M11 14l3 3 3-3',
} as const

export type IconName = keyof typeof ICONS
