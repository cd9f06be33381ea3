package properties

import "strings"

// Lookup finds a property in a canonical text. The value shares memory with it unless it has escapes. A text that is
// not canonical yields something or nothing, but never a panic.
func Lookup(canonical, name string) (Value, bool) {
	if canonical == "" || canonical[0] != '{' {
		return Value{}, false
	}
	rest := canonical[1:]
	for {
		quoted, after, ok := cutString(rest)
		if !ok || after == "" || after[0] != ':' {
			return Value{}, false
		}
		after = after[1:]
		if len(quoted) >= len(name) && unquote(quoted) == name {
			return firstValue(after)
		}
		if rest, ok = skipValue(after); !ok {
			return Value{}, false
		}
	}
}

// skipValue returns what follows a value and its comma.
func skipValue(text string) (rest string, ok bool) {
	if text != "" && text[0] == '"' {
		if _, text, ok = cutString(text); !ok {
			return "", false
		}
	}
	_, rest, ok = strings.Cut(text, ",")
	return rest, ok
}

// firstValue reads the value that text starts with.
func firstValue(text string) (Value, bool) {
	if text == "" {
		return Value{}, false
	}
	if text[0] == '"' {
		quoted, _, ok := cutString(text)
		return Value{String, unquote(quoted)}, ok
	}
	end := strings.IndexAny(text, ",}")
	if end <= 0 {
		return Value{}, false
	}
	switch text = text[:end]; text[0] {
	case 't', 'f':
		return Value{Bool, text}, true
	case 'n':
		return Value{Null, text}, true
	default:
		return Value{Number, text}, true
	}
}
