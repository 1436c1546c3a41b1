// The kinds of change between two versions, with the colours in which their objects are drawn.

export const CHANGES = [
  { of: 'change', name: 'added', title: 'Added', color: '#3ddc84' },
  { of: 'change', name: 'removed', title: 'Removed', color: '#ff5d52' },
  { of: 'change', name: 'moved', title: 'Moved', color: '#4db2ff' },
  { of: 'change', name: 'reclassed', title: 'Re-classed', color: '#ffb224' },
] as const

export const FILES = [
  { of: 'file', name: 'added', title: 'New images', color: '' },
  { of: 'file', name: 'removed', title: 'Removed images', color: '' },
  { of: 'file', name: 'changed', title: 'Replaced images', color: '' },
] as const

export function colorOf(change: string): string {
  return CHANGES.find((one) => one.name === change)?.color ?? '#ffffff'
}
