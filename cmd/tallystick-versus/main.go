// Command tallystick-versus measures the engine beside PostgreSQL and beside bare HTTP servers; see internal/versus.
package main

import (
	"os"

	"github.com/tallystick/tallystick/internal/versus"
)

func main() { os.Exit(versus.Main(os.Args[1:], os.Stdout, os.Stderr)) }
