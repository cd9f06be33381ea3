package app

import (
	"fmt"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

func newConfigCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Check a file of settings, or print an example",
		Example: `  tallystick config example > tallystick.yaml
  tallystick config check tallystick.yaml`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newConfigCheckCommand(), newConfigExampleCommand())
	return c
}

func newConfigExampleCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "example",
		Short:   "Print every setting with its default and what it is for",
		Example: `  tallystick config example > tallystick.yaml`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !asJSON {
				_, err := c.OutOrStdout().Write(exampleSettings)
				return err
			}
			var settings map[string]any
			if err := yaml.Unmarshal(exampleSettings, &settings); err != nil {
				return fmt.Errorf("read the example: %w", err)
			}
			return printJSON(c.OutOrStdout(), settings)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the settings as JSON, which a file of settings may be too")
	return c
}

func newConfigCheckCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "check FILE",
		Short:   "Say whether a file of settings is right, and what is wrong with it",
		Example: `  tallystick config check tallystick.yaml`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			_, err := loadSettings(args[0])
			if asJSON {
				result := struct {
					File  string `json:"file"`
					OK    bool   `json:"ok"`
					Error string `json:"error,omitempty"`
				}{File: args[0], OK: err == nil}
				if err != nil {
					result.Error = err.Error()
				}
				if err := printJSON(c.OutOrStdout(), result); err != nil {
					return err
				}
			}
			if err == nil && !asJSON {
				fmt.Fprintf(c.OutOrStdout(), "%s: ok\n", args[0])
			}
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	return c
}
