/**
 * The error tree, grouped by the reaction of a handler. `kind` is stable, and the same in the Python library.
 *
 *     WShardError
 *     ├── NotFoundError              check the spelling
 *     │   └── ObjectNotFoundError        a file or an address
 *     ├── ConflictError              another writer owns the recording
 *     │   └── AlreadyExistsError         a file or a journal is in the way
 *     ├── BadInputError              the caller's value cannot work
 *     │   ├── SchemaMismatchError        a step that does not fit the channels of its recording
 *     │   └── LimitExceededError
 *     ├── AccessDeniedError          ask for access
 *     ├── StorageError               disk or network failed; a later attempt may succeed
 *     ├── CorruptError               bytes are not the expected ones
 *     └── UnsupportedError           this library or environment cannot do that
 */

export interface ErrorNotes {
  /** One next step. */
  readonly hint?: string;
  readonly cause?: unknown;
}

export class WShardError extends Error {
  readonly kind: string = "error";
  readonly hint: string | null;

  constructor(message: string, notes: ErrorNotes = {}) {
    super(message, "cause" in notes ? { cause: notes.cause } : undefined);
    this.name = new.target.name;
    this.hint = notes.hint ?? null;
  }
}

export class NotFoundError extends WShardError {
  override readonly kind: string = "not_found";
}

export class ObjectNotFoundError extends NotFoundError {
  override readonly kind: string = "object_not_found";
}

export class ConflictError extends WShardError {
  override readonly kind: string = "conflict";
}

export class AlreadyExistsError extends ConflictError {
  override readonly kind: string = "already_exists";
}

export class BadInputError extends WShardError {
  override readonly kind: string = "bad_input";
}

export class SchemaMismatchError extends BadInputError {
  override readonly kind: string = "schema_mismatch";
}

export class LimitExceededError extends BadInputError {
  override readonly kind: string = "limit_exceeded";
}

export class AccessDeniedError extends WShardError {
  override readonly kind: string = "access_denied";
}

export class StorageError extends WShardError {
  override readonly kind: string = "storage";
}

export class CorruptError extends WShardError {
  override readonly kind: string = "corrupt";
}

export class UnsupportedError extends WShardError {
  override readonly kind: string = "unsupported";
}
