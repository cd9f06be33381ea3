package properties

import "strings"

const hexDigits = "0123456789abcdef"

// AppendString writes s as a canonical JSON string.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	copied := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[copied:i]...)
		if c < ' ' {
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
		} else {
			dst = append(dst, '\\', c)
		}
		copied = i + 1
	}
	dst = append(dst, s[copied:]...)
	return append(dst, '"')
}

// cutString splits a text that starts with a canonical string into what stands between its quotes and what follows it.
func cutString(text string) (quoted, rest string, ok bool) {
	if text == "" || text[0] != '"' {
		return "", "", false
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '"':
			return text[1:i], text[i+1:], true
		case '\\':
			i++
		}
	}
	return "", "", false
}

// unquote undoes the escapes of a canonical string. Without any it returns the same memory.
func unquote(quoted string) string {
	if strings.IndexByte(quoted, '\\') < 0 {
		return quoted
	}
	out := make([]byte, 0, len(quoted))
	for i := 0; i < len(quoted); i++ {
		if quoted[i] != '\\' || i+1 == len(quoted) {
			out = append(out, quoted[i])
			continue
		}
		i++
		if quoted[i] != 'u' || i+4 >= len(quoted) {
			out = append(out, quoted[i])
			continue
		}
		out = append(out, unhex(quoted[i+3])<<4|unhex(quoted[i+4]))
		i += 4
	}
	return string(out)
}

func unhex(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 10
	}
	return c - '0'
}
