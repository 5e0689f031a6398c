package cleanerd.agent;

import java.util.LinkedHashMap;
import java.util.Map;

/** The answers to the last swaps, so that a repeated request gets the same answer. */
final class Results {
    private static final int MOST_RESULTS = 1000;

    private static final class Result {
        private final String content;
        private final Map<String, Object> answer;

        Result(String content, Map<String, Object> answer) {
            this.content = content;
            this.answer = answer;
        }

        String content() {
            return content;
        }

        Map<String, Object> answer() {
            return answer;
        }
    }

    private final Map<String, Result> results = new LinkedHashMap<>() {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<String, Result> eldest) {
            return size() > MOST_RESULTS;
        }
    };

    synchronized void store(SwapRequest request, Map<String, Object> answer) {
        results.put(request.identity(), new Result(request.content(), answer));
    }

    /** The earlier answer to the same request, null if there is none; bad_plan if the content differs. */
    synchronized Map<String, Object> answerTo(SwapRequest request) throws Refusal {
        Result result = results.get(request.identity());
        if (result == null) {
            return null;
        }
        if (!result.content().equals(request.content())) {
            throw new Refusal("bad_plan", "another request of this plan has already swapped these groups");
        }
        return result.answer();
    }
}
