package retention

import (
	"context"
	"io"
	"os"
)

// Storage is where archives are kept. A file on it is there whole or not at all.
type Storage interface {
	// Put keeps the file under the name, durably. A file that is there under that name is replaced.
	Put(ctx context.Context, name string, file *os.File) error
	// Open returns a file. Errors: one that is os.ErrNotExist when there is none.
	Open(ctx context.Context, name string) (Blob, error)
}

// Blob is an open file of a storage.
type Blob interface {
	io.ReaderAt
	io.Closer
	Size() int64
}
