// Command tallystick is the server and the tools around its ledger. Everything it does is in internal/app.
package main

import (
	"os"

	"github.com/tallystick/tallystick/internal/app"
)

func main() { os.Exit(app.Main()) }
