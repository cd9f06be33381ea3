package journal

import (
	"errors"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Remedy says what a file operation failed of, and what an operator can do about it. It is for all files of a store.
func Remedy(err error) string {
	is := func(causes ...syscall.Errno) bool {
		for _, cause := range causes {
			if errors.Is(err, cause) {
				return true
			}
		}
		return false
	}
	switch {
	case vfs.IsNoSpaceError(err), is(syscall.EDQUOT):
		return "the disk is full: free space on the data disk"
	case is(syscall.EMFILE, syscall.ENFILE):
		return "too many files are open: raise the limit of open files, or lower http.max_connections"
	case is(syscall.EROFS):
		return "the file system is read-only: see why, and mount it for writing"
	case is(syscall.EACCES, syscall.EPERM):
		return "the permissions do not let the server write: give it the data directory"
	case is(syscall.EIO):
		return "the disk fails: look at it, and replace it"
	}
	return "look at the data disk"
}
