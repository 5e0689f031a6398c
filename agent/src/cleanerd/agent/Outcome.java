package cleanerd.agent;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Progress of a swap. It is updated during the swap, because a refusal also reports the groups that were swapped. */
final class Outcome {
    final List<Long> done = new ArrayList<>();
    final List<Map<String, Object>> outputs = new ArrayList<>();
    final List<Long> heldUs = new ArrayList<>();
    final List<String> warnings = new ArrayList<>();
    long validateUs;
    long pauseUs;
    boolean checkpoint;
    /** Such an outcome is not stored for a repeated request: the log is offline, and shows the result after a start. */
    boolean logDirFailed;

    Map<String, Object> toJson() {
        Map<String, Object> json = new LinkedHashMap<>();
        json.put("done", List.copyOf(done));
        json.put("outputs", List.copyOf(outputs));
        json.put("held_us", List.copyOf(heldUs));
        json.put("pause_us", pauseUs);
        json.put("validate_us", validateUs);
        json.put("checkpoint", checkpoint);
        json.put("warnings", List.copyOf(warnings));
        json.put("witnesses_kept", true); // for clients: the next request of the plan may omit them
        return json;
    }
}
