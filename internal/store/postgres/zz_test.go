package postgres
import ("testing";"context";"github.com/jackc/pgx/v5";"github.com/tallystick/tallystick/internal/core/meter";"github.com/tallystick/tallystick/internal/store/storetest";"github.com/tallystick/tallystick/internal/store";"time")
func TestZZ(t *testing.T){
 url:=migrated(t)
 s:=mustOpen(t,Options{URL:url}); defer s.Close()
 storetest.Create(s,"acme",storetest.NewMeter("calls",meter.Sum))
 st:=newStream()
 for i:=0;i<5;i++{ b:=time.Now(); s.Record(context.Background(),store.Batch{Tenant:"acme",Events:st.events(1000)}); t.Log(time.Since(b))}
 cfg,_:=pgx.ParseConfig(url)
 for k,v:=range s.options.settings(){cfg.RuntimeParams[k]=v}
 c,err:=pgx.ConnectConfig(context.Background(),cfg); if err!=nil{t.Fatal(err)}
 defer c.Close(context.Background())
 c.Exec(context.Background(),"SELECT set_config('role','tallystick_serve',false), set_config('tallystick.tenant','acme',false)")
 for _,x:=range []*statement{eventsByKey,countersByKey,putPlainCounters,addPlainEvents,membersByKey,eventsBetween,eventsOfSlice,corrections}{
  if _,err:=c.Exec(context.Background(),"PREPARE "+x.name+" AS "+x.sql);err!=nil{t.Log(x.name,err);continue}
  args:=map[string]string{"events_by_key":"'acme','{a,b}'","counters_by_key":"'acme','{2026-11-01}','{calls}','{c}'","put_plain_counters":"'acme','{}','{}','{}','{}','{}','{}','{}','{}','{}','{}','{}','{}','{}','{}','{}'","add_plain_events":"'acme',now(),'{}','{}','{}','{}','{}','{}','{}','{}','{}'","members_by_key":"'acme','{2026-11-01}','{calls}','{c}','{c}'","events_between":"'acme',1,2,now(),now(),true","events_of_slice":"'acme','{a,b}','c',now(),now(),5","corrections":"'acme','{a}'"}[x.name]
  rows,err:=c.Query(context.Background(),"EXPLAIN (VERBOSE, COSTS) EXECUTE "+x.name+"("+args+")", pgx.QueryExecModeSimpleProtocol)
  if err!=nil{t.Log(err);continue}
  for rows.Next(){v,_:=rows.Values();t.Log(v[0])}
  if rows.Err()!=nil{t.Log(x.name,rows.Err())}
 }
}
