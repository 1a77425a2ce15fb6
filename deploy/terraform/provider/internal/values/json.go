package values

import (
	"bytes"
	"encoding/json"
)

// Unmarshal reads JSON with numbers as they are written.
func Unmarshal(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode(into)
}
