package archive

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// profile looks into the shared files, ~/.aws/credentials and ~/.aws/config, for the profile that AWS_PROFILE names, or
// the default one.
func (f *finder) profile() (Source, error) {
	name := f.getenv("AWS_PROFILE")
	asked := name != ""
	if !asked {
		name = "default"
	}
	settings := map[string]string{}
	found := false
	for _, file := range []struct{ variable, base, prefix string }{
		{"AWS_CONFIG_FILE", "config", "profile "},
		{"AWS_SHARED_CREDENTIALS_FILE", "credentials", ""}, // the latter wins
	} {
		path := f.getenv(file.variable)
		if path == "" {
			home := f.getenv("HOME")
			if home == "" {
				continue
			}
			path = filepath.Join(home, ".aws", file.base)
		}
		section := file.prefix + name
		if name == "default" {
			section = name
		}
		there, err := readSection(path, section, settings)
		if err != nil {
			return nil, err
		}
		found = found || there
	}
	if !found && asked {
		return nil, fmt.Errorf("there is no profile %q (AWS_PROFILE) in the shared files", name)
	}
	return f.fromProfile(name, settings)
}

// fromProfile makes a source of a profile's settings; none of a profile that says nothing about credentials.
func (f *finder) fromProfile(name string, settings map[string]string) (Source, error) {
	id, secret := settings["aws_access_key_id"], settings["aws_secret_access_key"]
	switch {
	case settings["role_arn"] != "" && settings["web_identity_token_file"] != "":
		return f.assuming(settings["role_arn"], settings["role_session_name"], settings["web_identity_token_file"]), nil
	case id != "" && secret != "":
		return Fixed(id, secret, settings["aws_session_token"]), nil
	case id != "" || secret != "":
		return nil, fmt.Errorf("profile %q has one of aws_access_key_id and aws_secret_access_key: it needs both", name)
	}
	for _, other := range []string{"role_arn", "credential_process", "sso_session", "sso_start_url"} {
		if settings[other] != "" {
			return nil, fmt.Errorf("profile %q uses %s, which is not supported: "+
				"give it keys, or role_arn with web_identity_token_file", name, other)
		}
	}
	return nil, nil
}

// readSection adds the settings of one section of a file; a file that is not there has none. Nested settings are passed
// over.
func readSection(path, section string, into map[string]string) (found bool, err error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the shared file: %w", err)
	}
	defer func() { _ = file.Close() }() // only read
	in := false
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		line := lines.Text()
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "" || trimmed[0] == '#' || trimmed[0] == ';':
		case trimmed[0] == '[':
			header, _, closed := strings.Cut(trimmed[1:], "]")
			in = closed && strings.Join(strings.Fields(header), " ") == section
			found = found || in
		case in && line[0] != ' ' && line[0] != '\t':
			if key, value, ok := strings.Cut(trimmed, "="); ok {
				into[strings.ToLower(strings.TrimSpace(key))] = strings.TrimSpace(value)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return found, nil
}
