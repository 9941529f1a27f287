import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools one after another in this process, since starting a JVM for each takes most of their time.
 * Reads a line of JSON for each, {"class":..,"args":[..],"stdin":..}, and answers with one, {"exit":..,"out":..}.
 */
public class Tools {
    /** What a tool's end of the process becomes. */
    static final class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    static Integer ended;

    /** Scala's Console keeps the first System.out it sees, so the stream stays and what is behind it changes. */
    static final class Switch extends OutputStream {
        OutputStream to = OutputStream.nullOutputStream();

        @Override public synchronized void write(int b) throws java.io.IOException { to.write(b); }
        @Override public synchronized void write(byte[] b, int from, int n) throws java.io.IOException { to.write(b, from, n); }
        synchronized void to(OutputStream next) { to = next; }
    }

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        Switch out = new Switch();
        System.setOut(new PrintStream(out, true));
        System.setErr(System.out);
        // A tool may catch its own end and end again: the first one counts, and nothing said later.
        Exit.Procedure end = (code, message) -> {
            if (ended == null) {
                ended = code;
                System.out.flush();
                out.to(OutputStream.nullOutputStream());
            }
            throw new Ended();
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        ObjectMapper json = new ObjectMapper();
        BufferedReader steps = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = steps.readLine()) != null; ) {
            JsonNode step = json.readTree(line);
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            out.to(said);
            System.setIn(new ByteArrayInputStream(step.get("stdin").asText().getBytes()));
            int code = run(step.get("class").asText(), json.convertValue(step.get("args"), String[].class));
            System.out.flush();
            out.to(OutputStream.nullOutputStream());
            answers.println(json.writeValueAsString(Map.of("exit", code, "out", said.toString())));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    static int run(String name, String[] args) throws Exception {
        ended = null;
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) args);
            return ended == null ? 0 : ended;
        } catch (InvocationTargetException e) {
            if (ended != null) return ended;
            System.out.println(e.getCause());
            return 1;
        }
    }
}
