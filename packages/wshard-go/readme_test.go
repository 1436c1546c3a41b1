package wshard

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// If this test fails, the example in README.md does not run.
func TestReadmeExample(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```go\n")
	program, _, _ := strings.Cut(rest, "```")
	// Inside the package, so that its libraries are found without another module.
	source, err := os.MkdirTemp(".", "readme")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(source)
	if err := os.WriteFile(filepath.Join(source, "main.go"), []byte(program), 0o666); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "example")
	if out, err := exec.Command("go", "build", "-o", binary, "./"+source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := exec.Command(binary)
	run.Dir = t.TempDir()
	out, err := run.CombinedOutput()
	if want := "64 hex digits\nep_000 100 [100 7]\nf32 [16 7] 0\n"; err != nil || string(out) != want {
		t.Errorf("%v: %s", err, out)
	}
	checkSeventy(t, filepath.Join(run.Dir, "ep_001.wshard"))
}

func checkSeventy(t *testing.T, path string) {
	t.Helper()
	if e, err := Load(path); err != nil || e.Length != 70 {
		t.Errorf("%s: %v", path, err)
	}
}
