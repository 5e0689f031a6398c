package cleanerd.judge;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.utils.AppInfoParser;

/** Reads one command as JSON per line of stdin and answers with one line of JSON on stdout. README.md lists the commands. */
public final class Judge {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Judge() {}

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // output of libraries must not get between the answers
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                run(JSON.readTree(line), answer);
            } catch (Exception | AssertionError | NoClassDefFoundError e) {
                answer.removeAll();
                StringWriter trace = new StringWriter();
                e.printStackTrace(new PrintWriter(trace));
                answer.put("error", e.getClass().getName());
                answer.put("message", String.valueOf(e.getMessage()));
                answer.put("trace", trace.toString());
            }
            out.write(JSON.writeValueAsBytes(answer));
            out.write('\n');
            out.flush();
        }
    }

    private static void run(JsonNode command, ObjectNode answer) throws Exception {
        switch (command.get("op").asText()) {
            case "version" -> answer.put("version", AppInfoParser.getVersion());
            case "make" -> LogMaker.run(command, answer);
            case "clean" -> CleanCommand.run(command, answer);
            case "dump" -> Dumper.run(command, answer);
            case "compare" -> Comparer.run(command, answer);
            case "lookups" -> Lookups.run(command, answer);
            case "retain" -> RetainCommand.run(command, answer);
            case "crash" -> CrashCommand.run(command, answer);
            case "recover" -> RecoverCommand.run(command, answer);
            case "behave" -> BehaveCommand.run(command, answer);
            case "load" -> LoadCommand.run(command, answer);
            default -> throw new IllegalArgumentException("no such command: " + command.get("op"));
        }
    }
}
