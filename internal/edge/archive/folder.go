// Package archive keeps archives outside the deployment's store: in a folder, or in a bucket that speaks the S3
// protocol. It knows files by name and nothing of what is in them. A file is there under its name whole or not at all.
package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/tallystick/tallystick/internal/service/retention"
)

var (
	_ retention.Storage = (*Folder)(nil)
	_ retention.Storage = (*Bucket)(nil)
)

// Folder keeps archives in a directory.
type Folder struct{ dir string }

// NewFolder makes the directory when it is absent.
func NewFolder(dir string) (*Folder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the archive's folder: %w", err)
	}
	return &Folder{dir}, nil
}

const unfinished = ".unfinished"

// Put writes a file beside its place, syncs it, and gives it its name.
func (f *Folder) Put(_ context.Context, name string, file *os.File) error {
	path := filepath.Join(f.dir, filepath.FromSlash(name))
	parent := filepath.Dir(path)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	temp, err := os.OpenFile(path+unfinished, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(temp, file)
	if err = errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp.Name(), path); err != nil {
		return err
	}
	return errors.Join(syncDir(parent), syncDir(f.dir))
}

// Open returns a file; the error is os.ErrNotExist when there is none.
func (f *Folder) Open(_ context.Context, name string) (retention.Blob, error) {
	file, err := os.Open(filepath.Join(f.dir, filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	return newBlob(file, func() {})
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

type blob struct {
	*os.File
	size  int64
	after func()
}

func newBlob(file *os.File, after func()) (retention.Blob, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &blob{file, info.Size(), after}, nil
}

func (b *blob) Size() int64 { return b.size }

func (b *blob) Close() error {
	err := b.File.Close()
	b.after()
	return err
}
