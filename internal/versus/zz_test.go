package versus
import ("testing";"context";"os";"time")
func TestZZ(t *testing.T){
 only,err:=ParseOnly(os.Getenv("ONLY")); if err!=nil{t.Fatal(err)}
 r,err:=Run(context.Background(),Options{CellTime:1500*time.Millisecond,Repetitions:1,Only:only,Progress:os.Stderr})
 if err!=nil{t.Fatal(err)}
 r.Print(os.Stdout)
}
